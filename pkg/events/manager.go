package events

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagerOf is the writer of the newest entry of an object's managedFields. Of several
// entries of the newest second it is the last one listed, which is a guess: the API server
// sorts entries by operation, second and name.
//
// Upstream: apimachinery/pkg/util/managedfields/internal/managedfields.go, sortEncodedManagedFields.
func ManagerOf(fields []metav1.ManagedFieldsEntry) Manager {
	newest, _ := ManagersOf(fields)
	return newest
}

// ManagersOf gives also those whose entries are of the same second as the newest
// one, which is all that the API server tells: any of them may have made the
// change. Last of them are those who scale, whose entries have no time.
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

// ManagerIn is the manager that an entry is about.
func ManagerIn(f metav1.ManagedFieldsEntry) Manager {
	m := Manager{Name: f.Manager, Operation: string(f.Operation), Subresource: f.Subresource}
	if f.Time != nil {
		m.Time = f.Time.Time
	}
	return m
}

// Scales tells whether a manager's entry is about the number of replicas alone, which it
// set through the scale subresource, as "kubectl scale" does. The API server does not
// date such an entry, and takes it away when another manager sets that number: a manager
// that has one has set the number that is there.
//
// Upstream: apimachinery/pkg/util/managedfields/scalehandler.go, ToParent.
func (m Manager) Scales() bool { return m.Subresource == "scale" }

// header is the manager as it goes into a header; "" for one whose name would not arrive.
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

// plain is a text as a header can have it between tabs; "" where nothing but spaces is left.
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

// parseManager reads what header wrote: fields at the end that are empty may be missing.
// Anything else is no manager, since who changed an object is a remark and not worth
// losing the change for.
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

// parseManagers reads the managers of a delta: the first that has a name, and those beside
// it. proven is true where the first header names the author.
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
