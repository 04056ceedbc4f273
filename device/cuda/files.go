package cuda

import (
	"os"
	"path/filepath"
	"sync"
)

// Files are the devices that the driver opens, as the system has them now.
func Files() (paths []string) {
	for _, pattern := range []string{"/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dxg"} { // the last are Jetson's and WSL's
		found, _ := filepath.Glob(pattern) // it fails only for bad patterns
		paths = append(paths, found...)
	}
	return paths
}

// Folders are those that the driver writes to: for memory that processes share under MPS, and for code
// that it has compiled. The first call makes the latter if it is missing, as the driver would.
func Folders() []string { return []string{"/dev/shm", cache()} }

var cache = sync.OnceValue(func() string {
	if path := os.Getenv("CUDA_CACHE_PATH"); path != "" {
		return path
	}
	home := os.Getenv("HOME")
	if home == "" {
		return ""
	}
	path := filepath.Join(home, ".nv", "ComputeCache")
	_, _ = os.Mkdir(filepath.Dir(path), 0o700), os.Mkdir(path, 0o700) // best effort: it only saves time
	return path
})
