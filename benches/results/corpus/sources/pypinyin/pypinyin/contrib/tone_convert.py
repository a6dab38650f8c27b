# -*- coding: utf-8 -*-
from __future__ import unicode_literals

from pypinyin.style._tone_convert import (  # noqa
    to_normal,
    to_tone,
    to_tone2,
    to_tone3,
    to_initials,
    to_finals,
    to_finals_tone,
    to_finals_tone2,
    to_finals_tone3,
    tone_to_normal,
    tone_to_tone2,
    tone_to_tone3,
    tone2_to_normal,
    tone2_to_tone,
    tone2_to_tone3,
    tone3_to_normal,
    tone3_to_tone,
    tone3_to_tone2,
    # 向后兼容
    _improve_tone3,
    _get_number_from_pinyin,
    _v_to_u,
    _fix_v_u,
    _re_number,
)  # noqa
