"""English names of languages by their codes."""

from __future__ import annotations

import re

# ISO 639-1, the languages that parallel text is easily found for.
_NAMES = """
af Afrikaans, am Amharic, ar Arabic, as Assamese, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, br Breton,
bs Bosnian, ca Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es Spanish,
et Estonian, eu Basque, fa Persian, fi Finnish, fo Faroese, fr French, fy Western Frisian, ga Irish, gd Scottish Gaelic,
gl Galician, gu Gujarati, ha Hausa, he Hebrew, hi Hindi, hr Croatian, ht Haitian Creole, hu Hungarian, hy Armenian,
ia Interlingua, id Indonesian, ig Igbo, is Icelandic, it Italian, ja Japanese, jv Javanese, ka Georgian, kk Kazakh,
km Khmer, kn Kannada, ko Korean, ku Kurdish, ky Kyrgyz, la Latin, lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian,
mg Malagasy, mi Maori, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese,
nb Norwegian Bokmål, ne Nepali, nl Dutch, nn Norwegian Nynorsk, no Norwegian, oc Occitan, or Odia, pa Punjabi,
pl Polish, ps Pashto, pt Portuguese, ro Romanian, ru Russian, rw Kinyarwanda, sd Sindhi, se Northern Sami, si Sinhala,
sk Slovak, sl Slovenian, so Somali, sq Albanian, sr Serbian, sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik,
th Thai, tk Turkmen, tl Tagalog, tr Turkish, tt Tatar, ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese,
wa Walloon, xh Xhosa, yi Yiddish, yo Yoruba, zh Chinese, zu Zulu
"""
_BY_CODE = dict(entry.split(" ", 1) for entry in re.split(r",\s", _NAMES.strip()))


def language_name(code: str) -> str:
    """The English name of a language; the code itself if it is not known."""
    base, *region = re.split("[-_]", code)
    name = _BY_CODE.get(base.lower())
    if name is None:
        return code
    return f"{name} ({region[0]})" if region else name
