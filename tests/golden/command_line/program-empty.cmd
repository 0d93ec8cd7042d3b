crun ''
