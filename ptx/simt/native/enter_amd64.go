//go:build linux && amd64

package native

//go:noescape
func enter(f *Frame)
