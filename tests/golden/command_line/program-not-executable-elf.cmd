crun locked-elf
