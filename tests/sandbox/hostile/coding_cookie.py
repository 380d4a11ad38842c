# -*- coding: rot13 -*-
cevag("RFPNCRQ")
