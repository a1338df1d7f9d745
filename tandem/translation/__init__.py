"""The trained model at work: text to text, by PyTorch or by CTranslate2."""
