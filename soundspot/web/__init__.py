"""The web page: its layout, the handlers behind it, the visitors' files, limits and the server."""
