// Package ledger reads the three sources of package check: the storage from etcd, the API
// server's audit log, and the streams.
package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// stored are the kinds that are read from the storage, by the prefix of their keys in
// etcd.
var stored = map[string]kinds.Kind{
	"pods":                   kinds.Pods.Kind,
	"replicasets":            kinds.ReplicaSets.Kind,
	"deployments":            kinds.Deployments.Kind,
	"statefulsets":           kinds.StatefulSets.Kind,
	"daemonsets":             kinds.DaemonSets.Kind,
	"controllerrevisions":    kinds.ControllerRevisions.Kind,
	"jobs":                   kinds.Jobs.Kind,
	"cronjobs":               kinds.CronJobs.Kind,
	"controllers":            kinds.ReplicationControllers.Kind,
	"namespaces":             kinds.Namespaces.Kind,
	"serviceaccounts":        kinds.ServiceAccounts.Kind,
	"configmaps":             kinds.ConfigMaps.Kind,
	"poddisruptionbudgets":   kinds.PodDisruptionBudgets.Kind,
	"persistentvolumeclaims": kinds.PersistentVolumeClaims.Kind,
	"resourcequotas":         kinds.ResourceQuotas.Kind,
	"secrets":                {Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Full},
}

// prefix is the prefix of all keys of the API server.
const prefix = "/registry/"

// Storage reads etcd through its HTTP gateway.
type Storage struct {
	endpoint string
}

// NewStorage reads the etcd at a URL.
func NewStorage(endpoint string) *Storage { return &Storage{endpoint: endpoint} }

// header is the header of every response.
type header struct {
	Revision int64 `json:"revision,string"`
}

// pair is a key with its value, as in etcd's API. encoding/json decodes the base64 to
// []byte.
type pair struct {
	Key            []byte `json:"key"`
	Value          []byte `json:"value"`
	CreateRevision int64  `json:"create_revision,string"`
	ModRevision    int64  `json:"mod_revision,string"`
}

func (s *Storage) post(ctx context.Context, path string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("ask etcd: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("ask etcd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask etcd: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("ask etcd for %s: %s", path, response.Status)
	}
	return response, nil
}

// Revision is the newest revision.
//
// Errors: etcd does not answer.
func (s *Storage) Revision(ctx context.Context) (int64, error) {
	response, err := s.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(prefix), "limit": "1"})
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct{ Header header }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	return answer.Header.Revision, nil
}

// Changes is the history of the kinds that the rules use, from the first revision to the
// newest.
//
// Errors: etcd does not answer, or has compacted its history. Compaction must be off in etcd
// and in the API server.
func (s *Storage) Changes(ctx context.Context) ([]check.Change, error) {
	newest, err := s.Revision(ctx)
	if err != nil {
		return nil, err
	}
	response, err := s.post(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
		"key": []byte{0}, "range_end": []byte{0}, "start_revision": "1", "fragment": true}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	reader, stream := newHistorian(), json.NewDecoder(response.Body)
	for reader.revision < newest {
		var answer watched
		if err := stream.Decode(&answer); err != nil {
			return nil, fmt.Errorf("read etcd's history up to %d of %d: %w", reader.revision, newest, err)
		}
		if answer.Result.Canceled {
			return nil, fmt.Errorf("read etcd's history: %s (compacted at %s)", answer.Result.Reason, answer.Result.Compacted)
		}
		for _, e := range answer.Result.Events {
			if err := reader.take(e.Type == "DELETE", e.Pair); err != nil {
				return nil, err
			}
		}
	}
	return reader.changes, nil
}

// watched is one response of a watch.
type watched struct {
	Result struct {
		Canceled  bool   `json:"canceled"`
		Reason    string `json:"cancel_reason"`
		Compacted string `json:"compact_revision"`
		Events    []struct {
			Type string `json:"type"`
			Pair pair   `json:"kv"`
		} `json:"events"`
	} `json:"result"`
}

// historian decodes keys and values to objects.
type historian struct {
	revision int64
	changes  []check.Change
	last     map[string]check.Object // by key
}

func newHistorian() *historian { return &historian{last: map[string]check.Object{}} }

func (h *historian) take(gone bool, p pair) error {
	h.revision = max(h.revision, p.ModRevision)
	key := string(p.Key)
	rest, ours := strings.CutPrefix(key, prefix)
	folder, _, _ := strings.Cut(rest, "/")
	kind, known := stored[folder]
	if !ours || !known {
		return nil
	}
	if gone {
		last, there := h.last[key]
		if there {
			last.Created = false
			h.changes = append(h.changes, check.Change{Revision: p.ModRevision, Gone: true, Object: last})
			delete(h.last, key)
		}
		return nil
	}
	decoded, err := kinds.Decode(kind, kinds.Protobuf, p.Value)
	if err != nil {
		return fmt.Errorf("read %s at revision %d: %w", key, p.ModRevision, err)
	}
	object := objectOf(kind, decoded)
	object.Created = p.CreateRevision == p.ModRevision
	h.last[key] = object
	h.changes = append(h.changes, check.Change{Revision: p.ModRevision, Object: object})
	return nil
}

// parse parses a resourceVersion; 0 for none.
func parse(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
