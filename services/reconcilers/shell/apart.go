package shell

import "time"

// A view whose kinds are apart. When the API server is restored to an earlier time,
// every kind begins the same new epoch, but each is told again at its own speed: for a
// moment there are the replica sets of the backup beside the pods of the history that
// it ended. No decision on that is right in either of them, and one of them deletes
// pods that nobody gave up. What it wants meets no precondition that it breaks, for the
// pods are what they were. So no turn is stored until all kinds that the controller
// reads are in the newest epoch of any kind, and told to its end.

// Reunion is how long that may take, from the first word of the new epoch. A kind that
// the API server does not serve is ended in the new epoch by its watcher; one that lags
// behind longer is one that no watcher may list, and is waited for in vain.
const Reunion = 30 * time.Second

// parting is an epoch that some kinds have reached, and since when it has been
// waited for the others.
type parting struct {
	epoch uint64
	since time.Time
}

// apart tells whether a kind that the controller reads has not reached the newest
// epoch of any kind, or not been told of to its end there.
func (s scene) apart() (newest uint64, apart bool) {
	for _, k := range s.memory.kinds {
		newest = max(newest, k.epoch)
	}
	if newest == 0 {
		return 0, false
	}
	for at, k := range s.memory.kinds {
		if min(k.epoch, k.marked) < newest && s.reader.reads(at) {
			return newest, true
		}
	}
	return newest, false
}

// parted tells whether decisions have to wait since kinds are apart.
func (d *Desk) parted(s scene) bool {
	newest, apart := s.apart()
	if !apart {
		return false
	}
	d.part(newest)
	return d.now.Sub(d.parting.since) < Reunion
}

// part notes that there is an epoch. The wait for it begins with its first word, and not
// when a key first has to wait; later epochs alone begin it anew.
func (d *Desk) part(epoch uint64) {
	if epoch > d.parting.epoch {
		d.parting = parting{epoch, d.now}
		d.timers.set(d.now.Add(Reunion), d.sharp)
	}
}
