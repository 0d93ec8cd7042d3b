crun --event-log-handler=syslog train.py
