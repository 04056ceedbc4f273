// Package cores plays two of Muster's cores in virtual time against those who would break them:
// the guide that divides work (ivm/balance, and that of the library in C) with workers whose times are wild, and the dispatcher of
// virtual GPUs (node/vgpu) with programs whose kernels never end, devices that fail and jobs that come and go. A seed determines a play; an error
// says who was harmed.
package cores
