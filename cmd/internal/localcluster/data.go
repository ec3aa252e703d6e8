package localcluster

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// memory is the in-memory file system, on systems that have one.
const memory = "/dev/shm"

// dataPrefix is the prefix of the clusters' directories in it.
const dataPrefix = "millrace-etcd-"

// etcdData is etcd's data directory. For a cluster that is not kept it is in memory, if
// possible, because etcd is as fast as its disk.
func etcdData(dir string, keep bool) string {
	if info, err := os.Stat(memory); !keep && err == nil && info.IsDir() {
		sum := sha256.Sum256([]byte(dir))
		return filepath.Join(memory, fmt.Sprintf("%s%x", dataPrefix, sum[:6]))
	}
	return filepath.Join(dir, "etcd")
}

// StorageDir is etcd's data directory, for backup and restore.
func (c *Cluster) StorageDir() string { return c.etcdData }

// makeRoom removes the data that an earlier cluster left in the directory, unless it is
// kept.
func (c *Cluster) makeRoom() error {
	if _, err := os.Stat(filepath.Join(c.Dir, stateFile)); err == nil {
		return fmt.Errorf("start cluster in %s: one is running there already, or was not stopped", c.Dir)
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	sweep(memory, time.Now())
	c.etcdData = etcdData(c.Dir, c.options.Keep)
	if c.options.Keep {
		return nil
	}
	if err := os.RemoveAll(c.etcdData); err != nil {
		return fmt.Errorf("drop data of an earlier cluster: %w", err)
	}
	return nil
}

// sweep removes the data of clusters whose starter was killed, because no other process would
// free that memory. It keeps data that an etcd has locked, and data of the last minute, which an
// etcd may be about to lock.
func sweep(dir string, now time.Time) {
	found, err := filepath.Glob(filepath.Join(dir, dataPrefix+"*"))
	if err != nil { // cannot happen: the pattern is valid
		return
	}
	for _, data := range found {
		info, err := os.Stat(data)
		if err == nil && now.Sub(info.ModTime()) > time.Minute && !held(filepath.Join(data, "member", "snap", "db")) {
			_ = os.RemoveAll(data) // fails for another user's data, which stays
		}
	}
}

// held is whether a process has locked a file, as etcd locks its database.
func held(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return !os.IsNotExist(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}
