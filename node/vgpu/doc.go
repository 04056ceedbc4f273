// Package vgpu decides which client gets which virtual GPU, when, with how
// much device memory, and who has to leave for it.
package vgpu
