package doctor

import (
	"fmt"
	"math"
)

// The disk space that the record needs (docs/retention.md).
const (
	// LeastDisk holds a few of the largest objects for each stream.
	LeastDisk = 256 << 20
	// GoodDisk is twice etcd's default quota of 2 GiB: the states are bounded by the storage of the
	// API server.
	GoodDisk = 4 << 30
)

// Disk is the observation of the data directory of the embedded server, which may not exist yet.
type Disk struct {
	Dir string
	// Err is why the directory cannot be used.
	Err error
	// Free is the number of free bytes, and Has that of the streams; Known is false if the system
	// does not tell.
	Free, Has int64
	Known     bool
	// Bound is --nats-max-store; 0: not set.
	Bound int64
}

// Finding checks the data directory.
func (d Disk) Finding() Finding {
	room := d.Free + d.Has
	switch {
	case d.Err != nil:
		return found(CheckDisk, Failed, "the data directory %s cannot be used: %v", d.Dir, d.Err).
			so("name another directory with --data-dir, or make this one writable")
	case !d.Known:
		return found(CheckDisk, NotChecked, "this system does not say how much is free at %s", d.Dir)
	case room < LeastDisk:
		return found(CheckDisk, Failed, "%s has room for %s, and the streams need %s at least", d.Dir, size(room), size(LeastDisk)).
			so("make room there, or name a directory on a larger disk with --data-dir")
	case d.Bound > room:
		return found(CheckDisk, Warning, "--nats-max-store=%s is more than the %s that there is room for at %s", size(d.Bound), size(room), d.Dir).
			so("lower it: from 80 %% of it on the oldest messages make room, which must come before the disk is full")
	case room < GoodDisk:
		return found(CheckDisk, Warning, "%s has room for %s, which is less than twice what etcd takes by default (%s)", d.Dir, size(room), size(GoodDisk)).
			so("give it a larger disk, or keep less (--stream-max-age, --retention); docs/retention.md says what it takes up")
	case d.Has > 0:
		return found(CheckDisk, OK, "%s has %s free, and streams of %s", d.Dir, size(d.Free), size(d.Has))
	}
	return found(CheckDisk, OK, "%s has %s free", d.Dir, size(d.Free))
}

// size formats a number of bytes.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n, unit := float64(bytes), 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	if n >= 10 || n == math.Trunc(n) {
		return fmt.Sprintf("%.0f %s", n, units[unit])
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}
