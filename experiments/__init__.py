"""The paper's study: one file a figure, and what runs, stores, draws and judges them."""
