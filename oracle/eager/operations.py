"""Operations on other tasks, one at a time."""


def run(_):
    pass
