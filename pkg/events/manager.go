package events

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagerOf is the writer of the newest entry of an object's managedFields; the
// later entry wins where two have the same time, as the API server appends.
func ManagerOf(fields []metav1.ManagedFieldsEntry) Manager {
	newest, _ := ManagersOf(fields)
	return newest
}

// ManagersOf gives also those whose entries are of the same second as the newest
// one, which is all that the API server tells: any of them may have made the
// change.
func ManagersOf(fields []metav1.ManagedFieldsEntry) (newest Manager, beside []Manager) {
	for _, f := range fields {
		m := Manager{Name: f.Manager, Operation: string(f.Operation), Subresource: f.Subresource}
		if f.Time != nil {
			m.Time = f.Time.Time
		}
		switch {
		case newest.Name == "" || m.Time.After(newest.Time):
			newest, beside = m, nil
		case m.Time.Equal(newest.Time):
			newest, beside = m, append(beside, newest)
		}
	}
	return newest, beside
}

func (m Manager) header() string {
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' '
			}
			return r
		}, s)
	}
	at := ""
	if !m.Time.IsZero() {
		at = m.Time.UTC().Format(time.RFC3339)
	}
	return strings.Join([]string{clean(m.Name), clean(m.Operation), clean(m.Subresource), at}, "\t")
}

// parseManager reads what header wrote; anything else is no manager, since who
// changed an object is a remark and not worth losing the change for.
func parseManager(text string) Manager {
	f := strings.Split(text, "\t")
	if len(f) != 4 {
		return Manager{}
	}
	m := Manager{Name: f[0], Operation: f[1], Subresource: f[2]}
	if at, err := time.Parse(time.RFC3339, f[3]); err == nil {
		m.Time = at
	}
	return m
}
