"""The tour: a program, the scenes that are played with it, and the stage they are played on."""
