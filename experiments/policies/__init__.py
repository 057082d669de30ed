"""What writes answers: language models, asked freely or through menus."""
