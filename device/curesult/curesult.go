// Package curesult has the numbers with which CUDA's driver answers, by name. They are made
// from shim/errors.txt, as the C side's are, so that there is one list.
//
// It knows nothing of what the answers mean for anybody.
package curesult
