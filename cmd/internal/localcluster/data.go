package localcluster

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// memory is a file system in memory, where there is one.
const memory = "/dev/shm"

// dataPrefix begins the names of our directories in it.
const dataPrefix = "millrace-etcd-"

// etcdData is where etcd writes: in memory where that exists, since a cluster
// that is dropped in the end needs no disk, and etcd's speed is its disk's.
func etcdData(dir string, keep bool) string {
	if info, err := os.Stat(memory); !keep && err == nil && info.IsDir() {
		sum := sha256.Sum256([]byte(dir))
		return filepath.Join(memory, fmt.Sprintf("%s%x", dataPrefix, sum[:6]))
	}
	return filepath.Join(dir, "etcd")
}

// StorageDir is where etcd's data lies, for who backs them up and restores them.
func (c *Cluster) StorageDir() string { return c.etcdData }

// makeRoom empties what an earlier cluster left in the directory, unless it is
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

// sweep removes the data of clusters whose starter was killed: memory that no
// other process would ever free. Data that an etcd holds open, and data so young that one may
// be about to, are let alone.
func sweep(dir string, now time.Time) {
	found, err := filepath.Glob(filepath.Join(dir, dataPrefix+"*"))
	if err != nil { // the pattern is ours
		return
	}
	for _, data := range found {
		info, err := os.Stat(data)
		if err == nil && now.Sub(info.ModTime()) > time.Minute && !held(filepath.Join(data, "member", "snap", "db")) {
			_ = os.RemoveAll(data) // another user's, perhaps; then it stays
		}
	}
}

// held reports whether a process has locked a file, as etcd locks its database.
func held(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return !os.IsNotExist(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}
