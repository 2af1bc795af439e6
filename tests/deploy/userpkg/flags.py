USE = True
