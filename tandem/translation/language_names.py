"""English names of languages by their codes, for programs that show a list of them."""

from __future__ import annotations

_NAMES = """
af Afrikaans, am Amharic, ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bs Bosnian, ca Catalan,
cs Czech, cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es Spanish, et Estonian, eu Basque,
fa Persian, fi Finnish, fr French, ga Irish, gl Galician, gu Gujarati, he Hebrew, hi Hindi, hr Croatian, hu Hungarian,
hy Armenian, id Indonesian, is Icelandic, it Italian, ja Japanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada,
ko Korean, ky Kyrgyz, lo Lao, lt Lithuanian, lv Latvian, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi,
ms Malay, mt Maltese, my Burmese, nb Norwegian, ne Nepali, nl Dutch, nn Nynorsk, no Norwegian, pa Punjabi, pl Polish,
ps Pashto, pt Portuguese, ro Romanian, ru Russian, si Sinhala, sk Slovak, sl Slovenian, so Somali, sq Albanian,
sr Serbian, sv Swedish, sw Swahili, ta Tamil, te Telugu, th Thai, tl Tagalog, tr Turkish, uk Ukrainian, ur Urdu,
uz Uzbek, vi Vietnamese, xh Xhosa, yo Yoruba, zh Chinese, zu Zulu
"""
_BY_CODE = dict(entry.split() for entry in _NAMES.replace("\n", " ").split(","))


def language_name(code: str) -> str:
    """The English name of a language; a code that is not known stands for itself."""
    return _BY_CODE.get(code.lower().partition("-")[0], code)
