examples:
