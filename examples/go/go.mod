module crun/examples/go

go 1.19
