package datadir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// DefaultLimit is the default storage limit of the streams in bytes: three quarters of the free space
// and of their own. The server by itself counts only the free space, and would lower the limit
// with each start. 0 leaves the limit to the server.
func DefaultLimit(dir string) int64 {
	free, has, err := Space(dir)
	if err != nil {
		return 0
	}
	return (free + has) / 4 * 3
}

// Space is the number of free bytes at a directory, and the number that its files take up.
//
// Errors: the directory cannot be read; the system does not tell ([errors.ErrUnsupported]).
func Space(dir string) (free, has int64, err error) {
	var at syscall.Statfs_t
	if err := syscall.Statfs(dir, &at); err != nil {
		return 0, 0, err
	}
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return unlessGone(err)
		}
		file, err := e.Info()
		if err == nil {
			has += file.Size()
		}
		return unlessGone(err)
	})
	return int64(at.Bavail) * at.Bsize, has, err
}

// unlessGone ignores the error of a file that the server has just removed.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
