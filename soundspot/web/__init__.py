"""The web page: limits, files of visitors, the work, the guard at the door, the page itself."""
