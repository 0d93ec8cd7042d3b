launcher_SRCS := $(filter-out launcher/crun.c,$(wildcard launcher/*.c))
