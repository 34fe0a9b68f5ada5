"""The front door: learners with scikit-learn's habits."""
