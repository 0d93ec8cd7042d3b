crun ./orphan
