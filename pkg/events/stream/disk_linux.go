package stream

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// disk is how many bytes the streams may take up if nothing else is said: three quarters
// of what is free and what they have already. The server counts what is free alone, and
// would allow itself less with each start. 0 leaves it to the server.
func disk(dir string) int64 {
	free, has, err := Space(dir)
	if err != nil {
		return 0
	}
	return (free + has) / 4 * 3
}

// Space is how many bytes are free where a directory is, and how many its files take up.
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

// unlessGone is an error but of a file that a server has just removed.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
