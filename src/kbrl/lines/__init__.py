"""Lines and plans: local linear models around representative states, and short plans rolled out in them."""
