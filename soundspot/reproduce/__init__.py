"""The paper's tables and figures by one command: what each is, its runs, its report."""
