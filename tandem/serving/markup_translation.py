"""HTML."""

from __future__ import annotations

from tandem.serving.text_translation import TextTranslation, TranslatedText


async def translate_markup(markup: str, translation: TextTranslation, alternatives: int = 0) -> TranslatedText:
    """TEMPORARY."""
    return await translation.translate(markup, alternatives)
