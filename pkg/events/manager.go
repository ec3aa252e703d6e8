package events

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagerOf is the manager of the newest entry of an object's managedFields. If several entries
// have the newest second, it takes the last one listed, which is a guess: the API server sorts
// entries by operation, second and name.
//
// Upstream: apimachinery/pkg/util/managedfields/internal/managedfields.go, sortEncodedManagedFields.
func ManagerOf(fields []metav1.ManagedFieldsEntry) Manager {
	newest, _ := ManagersOf(fields)
	return newest
}

// ManagersOf also gives the managers whose entries have the same second as the newest one: any
// of them may have made the change, and the API server tells no more. The managers of the scale
// subresource, whose entries have no time, come last.
func ManagersOf(fields []metav1.ManagedFieldsEntry) (newest Manager, beside []Manager) {
	var scalers []Manager
	for _, f := range fields {
		m := ManagerIn(f)
		switch {
		case m.Scales():
			scalers = append(scalers, m)
		case newest.Name == "" || m.Time.After(newest.Time):
			newest, beside = m, nil
		case m.Time.Equal(newest.Time):
			newest, beside = m, append(beside, newest)
		}
	}
	if newest.Name == "" && len(scalers) > 0 {
		newest, scalers = scalers[0], scalers[1:]
	}
	return newest, append(beside, scalers...)
}

// ManagerIn reads the manager of an entry.
func ManagerIn(f metav1.ManagedFieldsEntry) Manager {
	m := Manager{Name: f.Manager, Operation: string(f.Operation), Subresource: f.Subresource}
	if f.Time != nil {
		m.Time = f.Time.Time
	}
	return m
}

// Scales reports whether a manager's entry covers only the number of replicas, set through the
// scale subresource, as "kubectl scale" does. The API server does not date such an entry, and
// removes it when another manager sets that number: so the manager of such an entry has set the
// current number.
//
// Upstream: apimachinery/pkg/util/managedfields/scalehandler.go, ToParent.
func (m Manager) Scales() bool { return m.Subresource == "scale" }

// header is the manager as a header value; "" when its name cannot be represented.
func (m Manager) header() string {
	name := plain(m.Name)
	if name == "" {
		return ""
	}
	at := ""
	if !m.Time.IsZero() && writable(m.Time) {
		at = m.Time.UTC().Format(time.RFC3339)
	}
	// NATS trims the values of headers: a tab at the end would not arrive.
	return strings.TrimRight(strings.Join([]string{name, plain(m.Operation), plain(m.Subresource), at}, "\t"), "\t ")
}

// plain replaces control characters by spaces, because tabs separate the fields of the header;
// it is "" when only spaces are left.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	if strings.Trim(text, " ") == "" {
		return ""
	}
	return text
}

// parseManager reads the value that header wrote; empty fields at the end may be missing. It
// gives the zero Manager for anything else, because a delta must not be lost for an unreadable
// manager.
func parseManager(text string) Manager {
	const fields = 4
	f := strings.Split(text, "\t")
	if len(f) > fields || plain(f[0]) == "" {
		return Manager{}
	}
	f = append(f, make([]string, fields)...)
	m := Manager{Name: plain(f[0]), Operation: plain(f[1]), Subresource: plain(f[2])}
	if at, err := parseTime(time.RFC3339, f[3]); err == nil {
		m.Time = at
	}
	return m
}

// parseManagers reads the managers of a delta: by, the first with a name, and the others beside
// it. proven is true when the first header value names the author.
func parseManagers(m Message) (by Manager, proven bool, beside []Manager) {
	for i, text := range m.Header[HeaderManager] {
		switch one := parseManager(text); {
		case one.Name == "":
		case by.Name == "":
			by, proven = one, i == 0 && m.Get(HeaderAuthor) == authored
		default:
			beside = append(beside, one)
		}
	}
	return by, proven, beside
}
