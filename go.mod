module muster

go 1.26
