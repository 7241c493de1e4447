"""The programs that people start, and the artifact store and stages that they are made of."""
