package ledger

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// AuditPolicy makes the API server log what the rules need: the writer's requests, at the stage
// RequestReceived and again with request and response; and deletes by other clients, to tell
// them from the writer's. It leaves out reviews, because they store nothing.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, resources: [{group: authorization.k8s.io}, {group: authentication.k8s.io}]}
- {level: None, resources: [{group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]}
- {level: RequestResponse, users: [` + writer + `], verbs: [create, update, patch, delete, deletecollection]}
- level: RequestResponse
  verbs: [delete]
  resources: [{group: "", resources: [pods, replicationcontrollers]}, {group: apps}, {group: batch}]
  omitStages: [RequestReceived]
- {level: None}
`

// writer is the writer's own user, which impersonates the controllers.
const writer = "millrace-writer"

// line has the fields of a line of the audit log that Audit reads.
type line struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	Object struct {
		Resource    string `json:"resource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Status struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	At      time.Time `json:"stageTimestamp"`
	Request struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Preconditions struct {
			UID types.UID `json:"uid"`
		} `json:"preconditions"`
	} `json:"requestObject"`
	Response struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name            string    `json:"name"`
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"responseObject"`
}

// Audit reads an audit log. It leaves out a line that is still being written, or that a
// killed server left unfinished.
//
// Errors: the file cannot be read.
func Audit(file string) ([]check.Write, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	var all []check.Write
	for one := range strings.Lines(string(text)) {
		// A server that was killed in the middle of a line leaves its beginning, and the next
		// server appends to it.
		if at := strings.LastIndex(one, `{"kind":"Event","apiVersion":"audit.k8s.io/`); at > 0 {
			one = one[at:]
		}
		var l line
		if json.Unmarshal([]byte(one), &l) == nil {
			all = append(all, l.write())
		}
	}
	return all, nil
}

// ours is whether a user is the writer, with a certificate or as a service account.
func ours(user string) bool {
	return user == writer || strings.HasPrefix(user, "system:serviceaccount:") && strings.HasSuffix(user, ":"+writer)
}

func (l line) write() check.Write {
	w := check.Write{
		ID: l.AuditID, Foreign: !ours(l.User.Username), User: l.User.Username, As: l.Impersonated.Username,
		Verb: l.Verb, Subresource: l.Object.Subresource,
		Ref: events.Ref{Kind: kinds.NameOf(l.Object.APIGroup, l.Object.Resource), Namespace: l.Object.Namespace, Name: l.Object.Name},
		At:  l.At, Ended: l.Stage == "ResponseComplete" || l.Stage == "Panic", Code: l.Status.Code, DryRun: strings.Contains(l.RequestURI, "dryRun="),
		OnlyUID: l.Request.Preconditions.UID,
	}
	if l.Response.Kind != "Status" {
		w.UID, w.Revision = l.Response.Metadata.UID, parse(l.Response.Metadata.ResourceVersion)
	}
	if w.As == "" {
		w.As = l.User.Username
	}
	if w.Ref.Name == "" { // a create's is in its body
		w.Ref.Name = l.Request.Metadata.Name
	}
	return w
}
