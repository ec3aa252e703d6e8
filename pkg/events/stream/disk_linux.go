package stream

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

// disk is how many bytes the streams may take up if nothing else is said: three quarters
// of what is free and what they have already. The server counts what is free alone, and
// would allow itself less with each start. 0 leaves it to the server.
func disk(dir string) int64 {
	var at syscall.Statfs_t
	if err := syscall.Statfs(dir, &at); err != nil {
		return 0
	}
	var has int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		file, err := e.Info()
		if err == nil {
			has += file.Size()
		}
		return err
	})
	if err != nil {
		return 0
	}
	return (int64(at.Bavail)*at.Bsize + has) / 4 * 3
}
