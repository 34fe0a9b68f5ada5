"""What `kbrl demo` shows: a table as people keep it, and the puddle world."""
