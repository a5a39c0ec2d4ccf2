module firstflight

go 1.22
