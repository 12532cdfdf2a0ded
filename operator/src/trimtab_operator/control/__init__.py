"""The loop: observe -> decide -> guard -> act -> verify -> report, one cycle per policy at a time.

Belongs here: when to look, what to do with a plan, how a move is followed until it lands, what a person is told. May
not be here: Kopf or HTTP. The API is reached through `trimtab_operator.cluster`, load through a `LoadSource`.
"""
