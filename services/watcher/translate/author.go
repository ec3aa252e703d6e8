package translate

import (
	"hash/crc32"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
)

// Writers is what is remembered of the managedFields of an object's newest version, 16 bytes an
// entry, to find the entry that the next version has changed. Each version is the result of one
// request. A request changes the entry of its own manager and takes fields away from others. The
// zero value stands for an object of which nothing is known.
type Writers struct {
	known   bool
	entries []entry
}

// entry is a managedFields entry: hashes of its identity and of its fields, the size of the fields
// in bytes, and its time in seconds since 1970; 0 without a time.
type entry struct{ who, fields, size, at uint32 }

// Unwritten returns the Writers of an object that is being created: it had no entries before.
func Unwritten() Writers { return Writers{known: true} }

// WritersOf returns the Writers of a version that has these fields.
func WritersOf(fields []metav1.ManagedFieldsEntry) Writers {
	w := Writers{known: true, entries: make([]entry, len(fields))}
	for i := range fields {
		w.entries[i] = entryOf(&fields[i])
	}
	return w
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func entryOf(f *metav1.ManagedFieldsEntry) (e entry) {
	for _, part := range []string{f.Manager, string(f.Operation), f.Subresource, f.APIVersion} {
		e.who = crc32.Update(crc32.Update(e.who, castagnoli, []byte(part)), castagnoli, []byte{0})
	}
	if f.FieldsV1 != nil {
		e.fields, e.size = crc32.Checksum(f.FieldsV1.Raw, castagnoli), uint32(len(f.FieldsV1.Raw))
	}
	if f.Time != nil {
		e.at = uint32(f.Time.Unix())
	}
	return e
}

// bucket is the manager into whose entry the API server merges the oldest ones when there
// are more than ten: its entry changes with the requests of others.
//
// Upstream: apimachinery/pkg/util/managedfields/internal/capmanagers.go.
const bucket = "ancient-changes"

// author returns the index of the entry whose manager made the version that has these fields and
// follows the version of w. ok is false where that is not certain: w is not known, the request has
// changed no entry (a binding, a deletion, a request that only removes fields, or one that writes
// the same fields twice in a second), or several entries are possible.
//
// A request dates the entry of its manager, so the author's entry is new, or has a later time.
// Within a second it is the entry that has gained fields: the other entries only lose what the
// request takes from them.
func (w Writers) author(fields []metav1.ManagedFieldsEntry) (at int, ok bool) {
	if !w.known {
		return 0, false
	}
	var dated, gained []int
	for i := range fields {
		now := entryOf(&fields[i])
		before := slices.IndexFunc(w.entries, func(e entry) bool { return e.who == now.who })
		switch {
		case fields[i].Manager == bucket:
		case before < 0, now.at != w.entries[before].at:
			dated = append(dated, i)
		case now.fields != w.entries[before].fields && now.size >= w.entries[before].size:
			gained = append(gained, i)
		}
	}
	if len(dated) == 0 {
		dated = gained
	}
	if len(dated) != 1 || w.before(fields[dated[0]]) {
		return 0, false
	}
	return dated[0], true
}

// before reports whether an entry is older than what is remembered of it: then the version is not the
// next one.
func (w Writers) before(f metav1.ManagedFieldsEntry) bool {
	now := entryOf(&f)
	return slices.ContainsFunc(w.entries, func(e entry) bool { return e.who == now.who && now.at < e.at })
}

// attribute sets the author of a delta, whose version has these fields.
func (w Writers) attribute(d *events.Delta, fields []metav1.ManagedFieldsEntry) {
	d.By, d.Beside = events.ManagersOf(fields)
	at, ok := w.author(fields)
	if !ok {
		return
	}
	author, all := events.ManagerIn(fields[at]), append([]events.Manager{d.By}, d.Beside...)
	if i := slices.Index(all, author); i >= 0 {
		all = slices.Delete(all, i, i+1)
	}
	d.By, d.Beside, d.Proven = author, nil, author.Name != ""
	if len(all) > 0 {
		d.Beside = all
	}
}
