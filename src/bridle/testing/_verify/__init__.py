"""`bridle verify`: try Bridle's promises on an installed CLI, offline, with a scripted model.

The promises are functions in the modules of this package. They use only what applications use.
"""
