"""From files and tables to transitions."""
