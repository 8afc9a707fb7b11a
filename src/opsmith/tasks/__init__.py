"""Tasks that are no overloads of ATen, modules and collectives, and the reference of every task."""
