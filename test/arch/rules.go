// Package arch is the law of the architecture: which package may import which, what pure code
// may not do, and how large files and functions may grow. The rules are data in this file; each
// names its reason, and a violation repeats it.
//
// The package uses only the parser, neither the type checker nor the go command, so that the
// law also works in a tree that does not compile at the moment.
package arch

// module is the prefix of every package of ours; the path of a package below it
// is its directory.
const module = "github.com/millrace/millrace/"

// Layer is a set of packages under one law. Patterns are import paths, for Millrace's packages
// without the module's prefix: "*" stands for one element, a final "/..." for everything at and
// below. The first layer that matches a package is its layer.
type Layer struct {
	Name     string
	Packages []string
	// Pure code computes: it has no context, clock, logger, randomness, goroutine or client,
	// and no effect outside.
	Pure bool
	// Open layers may import everything except the imports that a door reserves.
	Open bool
	// May lists what the packages may import besides the standard library and the packages
	// below their own directory.
	May []string
	// Because is the reason, which a violation repeats.
	Because string
}

// controllers is the folder of the catalogue; each controller is a folder in it.
const controllers = "services/reconcilers/controllers"

var (
	vocabulary = []string{"pkg/events", "pkg/events/query", "pkg/events/report", "pkg/events/kinds", "pkg/events/subject", "pkg/events/redact", "pkg/events/csr"}
	rights     = "pkg/events/access"
	apiTypes   = []string{"k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/utils/ptr", "k8s.io/utils/dump"}
	grammar    = "services/reconcilers/reconcile"
	knowledge  = "services/reconcilers/kube/..."
	gates      = "services/reconcilers/kube/gate"
	// instruments are the imports with which a shell is observed and waits.
	instruments = []string{
		"github.com/cenkalti/backoff/v4", "github.com/prometheus/...", "go.opentelemetry.io/...",
		"golang.org/x/sync/...", "github.com/go-logr/logr", "k8s.io/klog/v2", "pkg/events/sleep",
	}
	// kit is the imports that tests are written with.
	kit = []string{
		"pgregory.net/rapid", "github.com/google/go-cmp/...", "sigs.k8s.io/yaml", "golang.org/x/tools/txtar",
		"services/reconcilers/reconciletest/...", "go.uber.org/goleak", "pkg/events/eventually", "pkg/events/metrictest",
		"pkg/events/servicetest", "pkg/events/trace/tracetest", "pkg/events/bus/bustest",
	}
)

// layers from the bottom up, special ones before general ones.
var layers = []Layer{
	{
		Name: "vocabulary (L0)", Packages: vocabulary, Pure: true,
		May: list(vocabulary, apiTypes, []string{
			"github.com/cespare/xxhash/v2",                  // for checksums
			"github.com/go-json-experiment/json/...",        // reads JSON in half the time
			"google.golang.org/protobuf/encoding/protowire", // reads parts of the API's types without decoding all
		}),
		Because: "everything speaks the vocabulary, so it depends on nothing but the API's types, their encoding and a hash",
	},
	{
		Name: "bus", Packages: []string{"pkg/events/bus"},
		May:     list(vocabulary),
		Because: "the interfaces of the bus must not know any implementation of it",
	},
	{
		Name: "bus for tests", Packages: []string{"pkg/events/bus/bustest"},
		May:     list(vocabulary, []string{"pkg/events/bus", "pkg/events/stream/memory", "pkg/events/stream/streamtest"}),
		Because: "a test of any package intercepts calls of a bus, so the wrapper knows only what a bus is",
	},
	{
		Name: "the stack of a goroutine", Packages: []string{"pkg/events/growstack"},
		May:     []string{},
		Because: "how large a goroutine's stack is concerns nothing else",
	},
	{
		Name: "waiting", Packages: []string{"pkg/events/sleep", "pkg/events/eventually"},
		May:     []string{},
		Because: "how to wait concerns nothing of what is waited for",
	},
	{
		Name: "services in tests", Packages: []string{"pkg/events/servicetest"},
		May:     []string{},
		Because: "it runs a function, for tests of any service",
	},
	{
		Name: "connections that are cut", Packages: []string{"pkg/events/cutconn"},
		May:     []string{},
		Because: "it carries bytes, or loses them, for tests of any module",
	},
	{
		Name: "an API server for tests", Packages: []string{"pkg/events/apiservertest"},
		May:     apiTypes,
		Because: "it serves objects without a schema to tests of any module, and knows neither a client nor what is tested",
	},
	{
		Name: "metrics in tests", Packages: []string{"pkg/events/metrictest"},
		May:     []string{"github.com/prometheus/client_golang/prometheus"},
		Because: "it reads what any program of ours measures",
	},
	{
		Name: "rights on the bus (L1)", Packages: []string{rights}, Pure: true,
		May:     []string{},
		Because: "who may do what is data, from which a server's file is written",
	},
	{
		Name: "trace's test kit", Packages: []string{"pkg/events/trace/tracetest"},
		May:     []string{"pkg/events/trace", "go.opentelemetry.io/otel/..."},
		Because: "the recorder of spans knows OpenTelemetry and nothing of what the spans are about",
	},
	{
		Name: "trace", Packages: []string{"pkg/events/trace"},
		May: list(vocabulary, apiTypes, []string{
			"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/propagation",
			"go.opentelemetry.io/otel/semconv/v1.43.0", "go.opentelemetry.io/otel/trace",
		}),
		Because: "the words of traces rest on OpenTelemetry's interfaces and one version of its conventions; wiring chooses the SDK",
	},
	{
		Name: "grammar (L1)", Packages: []string{grammar}, Pure: true,
		May:     list(vocabulary, apiTypes),
		Because: "a decision is a value; whatever it needs comes in with the view",
	},
	{
		Name: "knowledge of CSI drivers (L1)", Packages: []string{"services/reconcilers/kube/csi"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{"k8s.io/csi-translation-lib"}),
		Because: "which driver has taken over from an in-tree plugin, and what it calls a volume, is read with the library that the kubelet and the drivers' attachers translate with",
	},
	{
		Name: "knowledge (L1)", Packages: []string{knowledge}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{grammar, knowledge}),
		Because: "what controllers share is as pure as they are",
	},
	{
		Name: "catalogue (L1)", Packages: []string{controllers}, Pure: true,
		May:     list(vocabulary, []string{grammar, gates, controllers + "/..."}),
		Because: "the catalogue lists controllers with what they are told, and does nothing else",
	},
	{
		Name: "the controller of CronJobs (L1)", Packages: []string{controllers + "/cronjob"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{grammar, knowledge, "github.com/robfig/cron/v3"}),
		Because: "schedules mean what the library says that upstream reads them with; for the rest it is a controller like the others",
	},
	{
		Name: "the controller of ResourceQuotas (L1)", Packages: []string{controllers + "/resourcequota"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{grammar, knowledge, "k8s.io/component-helpers/resource"}),
		Because: "what a pod asks for is summed up by the library that the API server charges with, or what is used would go up and down; for the rest it is a controller like the others",
	},
	{
		Name: "the controller of HorizontalPodAutoscalers (L1)", Packages: []string{controllers + "/horizontalpodautoscaler"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{grammar, knowledge, "k8s.io/component-helpers/resource"}),
		Because: "what a pod requests as a whole is read with the library that the kubelet reserves it with; for the rest it is a controller like the others",
	},
	{
		Name: "the controller of DaemonSets (L1)", Packages: []string{controllers + "/daemonset"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{grammar, knowledge, "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"}),
		Because: "which nodes an affinity means is read with the scheduler's own library; for the rest it is a controller like the others",
	},
	{
		Name: "controllers (L1)", Packages: []string{controllers + "/..."}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{grammar, knowledge}),
		Because: "a controller knows the vocabulary, the grammar and the API's types; it never imports another controller, a client or a bus",
	},
	{
		Name: "watcher's and writer's middle (L1)", Packages: []string{"services/watcher/translate", "services/writer/plan"}, Pure: true,
		May:     list(vocabulary, apiTypes),
		Because: "each service is a pure middle between two doors",
	},
	{
		Name: "memory of versions (L1)", Packages: []string{"services/watcher/versions"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{"services/watcher/translate"}),
		Because: "what follows from the versions that an object had is a matter of the versions and the time",
	},
	{
		Name: "the writer's limits (L1)", Packages: []string{"services/writer/limits"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{"sigs.k8s.io/yaml"}),
		Because: "which writes are held follows from the configuration, the outcomes and the time",
	},
	{
		Name: "stories (L1)", Packages: []string{"services/reconcilers/story"}, Pure: true,
		May:     list(vocabulary, []string{grammar, "sigs.k8s.io/yaml", "golang.org/x/tools/txtar"}),
		Because: "a story is a view and a decision written down, for every program that wants it",
	},
	{
		Name: "test kit", Packages: []string{"services/reconcilers/reconciletest/..."},
		May:     list(vocabulary, apiTypes, kit, []string{grammar, knowledge, "services/reconcilers/story"}),
		Because: "the kit tests decisions, which know neither bus nor API server",
	},
	{
		Name: "stream (L2)", Packages: []string{"pkg/events/stream/..."},
		May: list(vocabulary, apiTypes, instruments, kit,
			// The checksums in the server's files are of this kind.
			[]string{"pkg/events/bus", rights, "pkg/events/stream/...", "github.com/nats-io/...", "github.com/minio/highwayhash"},
			[]string{"github.com/klauspost/compress/s2"}), // the server compresses backups with it
		Because: "the door to JetStream carries messages; it knows neither the services nor the API server",
	},
	{
		Name: "fields of the record (L1)", Packages: []string{"pkg/events/record/fields"}, Pure: true,
		May:     list(vocabulary, apiTypes),
		Because: "what differs between two versions is a matter of the two alone",
	},
	{
		Name: "requests of one question (L2)", Packages: []string{"pkg/events/record/internal/parallel"},
		May:     []string{},
		Because: "how many requests are under way concerns neither what is asked nor who answers",
	},
	{
		Name: "record (L2)", Packages: []string{"pkg/events/record"},
		May:     list(vocabulary, apiTypes, []string{"pkg/events/bus", "pkg/events/record/fields", "pkg/events/stream/memory"}),
		Because: "what reads the past knows the bus and the vocabulary, and neither a service nor a controller",
	},
	{
		Name: "questions on the record (L2)", Packages: []string{"pkg/events/record/standing", "pkg/events/record/diff"},
		May: list(vocabulary, apiTypes, []string{
			"pkg/events/bus", "pkg/events/record", "pkg/events/record/fields", "pkg/events/record/internal/parallel",
			"pkg/events/record/recordtest", "pkg/events/stream/memory",
		}),
		Because: "what asks the record more than what happened rests on the record, which knows nothing of it",
	},
	{
		Name: "record's test kit", Packages: []string{"pkg/events/record/recordtest"},
		May:     list(vocabulary, apiTypes, []string{"pkg/events/bus", "pkg/events/stream/memory"}),
		Because: "who tells a bus what happened, for tests, knows the bus and the vocabulary; no program of ours imports it",
	},
	{
		Name: "archive (L2)", Packages: []string{"pkg/events/archive"},
		May: list(vocabulary, []string{
			"pkg/events/bus", "pkg/events/record", "pkg/events/stream/memory", "pkg/events/stream/streamtest",
			"github.com/cespare/xxhash/v2", "github.com/klauspost/compress/zstd",
		}, apiTypes),
		Because: "a record in a file is read without a bus; it knows the vocabulary, what a record is, and how files are packed",
	},
	{
		Name: "consistency of a stream (L2)", Packages: []string{"pkg/events/notary/internal/consistency"},
		May:     list(vocabulary, apiTypes, []string{"pkg/events/bus"}),
		Because: "whether the messages of a stream fit each other is a matter of the messages, with signatures or without",
	},
	{
		Name: "notary (L2)", Packages: []string{"pkg/events/notary"},
		May: list(vocabulary, apiTypes, []string{
			"pkg/events/bus", "pkg/events/archive", "pkg/events/sign", "pkg/events/stream/memory", "golang.org/x/mod/sumdb/...",
		}),
		Because: "who vouches for a record, and who verifies it, knows what a record is and nothing of who made it",
	},
	{
		Name: "sign (L2)", Packages: []string{"pkg/events/sign"},
		May:     list(vocabulary, kit),
		Because: "who signed a message is told by the message and the keys alone; only the keys' files are read",
	},
	{
		Name: "membership (L2)", Packages: []string{"pkg/events/membership"},
		May:     list(vocabulary, []string{"pkg/events/bus", "pkg/events/stream/memory"}),
		Because: "what divides work knows the bus and what the other replicas say, and nothing of the work",
	},
	{
		Name: "storageepoch (L2)", Packages: []string{"pkg/events/storageepoch"},
		May:     list(vocabulary, []string{"pkg/events/bus", "pkg/events/stream/memory"}),
		Because: "which epoch it is concerns who tells of it and who acts on it, and is neither's",
	},
	{
		Name: "exemplar (L2)", Packages: []string{"pkg/events/exemplar"},
		May:     list(vocabulary, instruments, []string{"pkg/events/trace"}),
		Because: "it ties what the services measure to the traces that messages carry, and knows nothing else",
	},
	{
		Name: "cache (L2)", Packages: []string{"services/reconcilers/cache/..."},
		May:     list(vocabulary, apiTypes, []string{grammar, "github.com/tidwall/btree"}),
		Because: "what the cache holds follows from the messages that it folded, and from no service, bus or clock",
	},
	{
		Name: "shards (L1)", Packages: []string{"services/reconcilers/shard"}, Pure: true,
		May:     []string{"pkg/events"},
		Because: "every replica must compute the same shard of a key, whatever else it knows",
	},
	{
		Name: "work queue (L1)", Packages: []string{"services/reconcilers/workqueue"}, Pure: true,
		Because: "in which order keys are looked at rests on ranks and moments alone",
	},
	{
		Name: "engine (L2)", Packages: []string{"services/reconcilers/engine"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{"pkg/events/bus", "pkg/events/trace", grammar, "services/reconcilers/cache/...", "services/reconcilers/shard", "services/reconcilers/workqueue"}),
		Because: "when a key gets its turn follows from what the engine is told, so that live runs and simulations are the same code",
	},
	{
		Name: "shell (L3)", Packages: []string{"services/reconcilers/shell/..."},
		May:     list(vocabulary, apiTypes, instruments, []string{"pkg/events/bus", "pkg/events/growstack", "pkg/events/sign", "pkg/events/trace", grammar, "services/reconcilers/cache/...", "services/reconcilers/engine", "services/reconcilers/shard"}),
		Because: "the shell talks to interfaces, so that live runs, replays and simulations are the same code",
	},
	{
		Name: "replay (L3)", Packages: []string{"services/reconcilers/replay/..."},
		// Its tests report the history of a bus in memory.
		May:     list(vocabulary, apiTypes, []string{"pkg/events/bus", "pkg/events/stream/memory", "pkg/events/record", grammar, "services/reconcilers/cache", "services/reconcilers/story"}),
		Because: "the past is decided again with the reconcilers' own cache, over whatever bus has it, and by no controller in particular",
	},
	{
		Name: "shadow (L1)", Packages: []string{"services/reconcilers/shadow"}, Pure: true,
		May:     list(vocabulary, apiTypes, []string{"pkg/events/record/fields", grammar, knowledge}),
		Because: "whether two writes agree is a matter of the two, and of what the controller says on other views",
	},
	{
		Name: "beside (L3)", Packages: []string{"services/reconcilers/beside"},
		May: list(vocabulary, apiTypes, instruments, []string{
			"pkg/events/bus", "pkg/events/membership", "pkg/events/stream/memory", grammar, "services/reconcilers/cache", "services/reconcilers/shell", "services/reconcilers/shadow",
		}),
		Because: "shadow mode needs a bus and the cache, and no door to anything",
	},
	{
		Name: "causes (L3)", Packages: []string{"services/watcher/causes"},
		May: list(vocabulary, apiTypes, instruments, kit, []string{
			"pkg/events/bus", "pkg/events/trace", "services/watcher/versions",
			// Its tests record changes on a bus in memory.
			"pkg/events/stream/memory", "services/watcher/translate", "services/watcher/watchertest",
		}),
		Because: "the cause of a change follows from the change and from what writers report on the bus; the API server is not asked",
	},
	{
		Name: "reflector (L3)", Packages: []string{"services/watcher/reflector"},
		May: list(vocabulary, apiTypes, instruments, kit, []string{
			"pkg/events/bus", "pkg/events/storageepoch", "services/watcher/source", "services/watcher/translate",
			"services/watcher/causes", "services/watcher/kindlog", "services/watcher/versions",
			// Its tests record on a bus in memory what an API server of tests has.
			"pkg/events/stream/memory", "pkg/events/trace", "pkg/events/apiservertest", "services/watcher/watchertest",
		}),
		Because: "what keeps the log of one kind knows the door to the API server and the bus, and nothing of other kinds and watchers",
	},
	{
		Name: "log of a kind (L3)", Packages: []string{"services/watcher/kindlog"},
		May: list(vocabulary, apiTypes, []string{
			"pkg/events/bus", "pkg/events/bus/bustest", "pkg/events/sleep", "k8s.io/klog/v2", "services/watcher/translate",
			"pkg/events/stream/memory", "services/watcher/watchertest", // its tests write a log in memory
		}),
		Because: "what a log says, and whether it is whole, is told by the bus alone",
	},
	{
		Name: "watcher's test kit", Packages: []string{"services/watcher/watchertest"},
		May:     list(vocabulary, apiTypes, []string{"pkg/events/apiservertest", "pkg/events/bus", "pkg/events/bus/bustest", "pkg/events/eventually", "services/watcher/source", "k8s.io/client-go/rest", "k8s.io/klog/v2", "k8s.io/klog/v2/ktesting"}),
		Because: "what tests of the watcher share; no program of ours imports it",
	},
	{
		Name: "the writer's side of the bus (L3)", Packages: []string{"services/writer/announce", "services/writer/kindlog", "services/writer/limiter"},
		May: list(vocabulary, apiTypes, instruments, kit, []string{
			"k8s.io/utils/clock/...", "pkg/events/bus", "pkg/events/storageepoch", "pkg/events/stream/memory", "pkg/events/trace",
			"services/writer/internal/podlog", "services/writer/limits", "services/writer/plan",
		}),
		Because: "what a writer knows before a request, and what it tells of one, is on the bus; only the door asks the API server",
	},
	{
		Name: "doors to the API server (L3)", Packages: []string{"services/watcher/source/...", "services/writer/apply/..."},
		Open:    true,
		Because: "the two doors to the API server",
	},
	{Name: "wiring (L4)", Packages: []string{"services/...", "cmd/..."}, Open: true, Because: "wiring puts the parts together"},
	{Name: "tests and tools", Packages: []string{"test/...", "tools/..."}, Open: true, Because: "tests and tools look at everything"},
}

// Door is a package that only a few packages may import.
type Door struct {
	Imports, Except, Keepers []string
	Because                  string
}

// credentials are the parts of client-go that wiring uses: it reads kubeconfigs, hands
// rest.Configs to the doors, and asks a server for its version before it starts anything.
var credentials = []string{"k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd/...", "k8s.io/client-go/discovery"}

// templates is the part of client-go that parses kubectl's JSONPath templates. It talks to no
// server.
var templates = []string{"k8s.io/client-go/util/jsonpath"}

// doors apply to test files as well.
var doors = []Door{
	{
		Imports: []string{"github.com/nats-io/..."},
		Keepers: []string{"pkg/events/stream/...", "test/...", "tools/..."},
		Because: "pkg/events/stream is the only door to JetStream",
	},
	{
		Imports: []string{"k8s.io/client-go/..."},
		Except:  list(credentials, templates),
		// localcluster is the administrator of the cluster that it starts; delegated
		// authenticates scrapers, and reads and writes no object; election holds a Lease, and
		// nothing else; approval annotates an object as its user, and nothing else.
		Keepers: []string{"cmd/internal/localcluster/...", "cmd/internal/health/delegated", "cmd/internal/election/...", "cmd/internal/approval", "cmd/internal/takeover", "services/watcher/source/...", "services/writer/apply/...", "test/...", "tools/..."},
		Because: "watcher/source and writer/apply are the only doors to the API server",
	},
	{
		Imports: credentials,
		Keepers: []string{"services/watcher", "services/watcher/source/...", "services/watcher/watchertest", "services/writer", "services/writer/apply/...", "cmd/...", "test/...", "tools/..."},
		Because: "only the doors to the API server and their wiring hold a Kubernetes credential; reconcilers have none",
	},
	{
		Imports: []string{"cmd/internal/reader/past", "cmd/internal/reader/pending", "cmd/internal/reader/audit", "cmd/internal/reader/migration"},
		// command exits with 2 after a finding of verify.
		Keepers: []string{"cmd/internal/reader", "cmd/internal/command"},
		Because: "a group of commands does not rest on another: what they share is in cmd/internal/reader/session and below it",
	},
	{
		Imports: []string{"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/...", "go.opentelemetry.io/contrib/..."},
		Keepers: []string{"cmd/internal/telemetry", "pkg/events/trace/tracetest", "test/...", "tools/..."},
		Because: "cmd/internal/telemetry decides what becomes of spans; all others make them through pkg/events/trace",
	},
	{
		Imports: []string{"k8s.io/kubernetes/...", "k8s.io/kubernetes"},
		Keepers: []string{"test/...", "tools/..."},
		Because: "upstream's code is what we are compared with, never what we are made of",
	},
	{
		Imports: []string{"k8s.io/apiserver/...", "services/writer/apply/typecheck"},
		Keepers: []string{"services/writer/apply/typecheck", "cmd/internal/serviceflags", "cmd/internal/health/...", "test/..."},
		Because: "upstream's library of API servers is large: its type checker is put in by wiring, and only the health address is guarded and served as upstream's is",
	},
	{
		Imports: []string{"github.com/go-jose/...", "services/writer/apply/mint"},
		Keepers: []string{"services/writer", "services/writer/apply", "services/writer/apply/applytest", "services/writer/apply/credentials", "services/writer/apply/mint", "cmd/internal/controllerflags", "test/..."},
		Because: "a process that can sign tokens may be any service account: the mint alone has the key, wiring hands it to the door, and the door uses it",
	},
	{
		Imports: []string{"services/writer/apply/authority"},
		Keepers: []string{"services/writer", "services/writer/apply", "services/writer/apply/applytest", "services/writer/apply/authority", "services/writer/apply/credentials", "cmd/internal/controllerflags", "test/..."},
		Because: "a process that can sign certificates may be any user: the authority alone has the keys, wiring hands it to the door, and the door uses it",
	},
}

// impureImports are packages that pure code must not import.
var impureImports = map[string]string{
	"context":                              "pure code is never cancelled",
	"crypto/rand":                          "names and ids derive from inputs",
	"io/ioutil":                            "pure code touches no file",
	"log":                                  "the reason of a decision is its log line",
	"log/slog":                             "the reason of a decision is its log line",
	"math/rand":                            "names and ids derive from inputs",
	"math/rand/v2":                         "names and ids derive from inputs",
	"net":                                  "pure code has no client",
	"net/http":                             "pure code has no client",
	"os":                                   "pure code touches no file and no environment",
	"os/exec":                              "pure code starts no process",
	"sync":                                 "pure code has no concurrency",
	"sync/atomic":                          "pure code has no concurrency",
	"syscall":                              "pure code has no system calls",
	"unsafe":                               "pure code is safe code",
	"k8s.io/klog/v2":                       "the reason of a decision is its log line",
	"k8s.io/apimachinery/pkg/util/uuid":    "names and ids derive from inputs",
	"k8s.io/apimachinery/pkg/util/wait":    "the shell alone waits",
	"k8s.io/apimachinery/pkg/util/runtime": "the shell alone recovers",
	"k8s.io/apimachinery/pkg/watch":        "pure code has no client",
	"k8s.io/apimachinery/pkg/util/httpstream": "pure code has no client",
}

// impureCalls are functions that pure code must not use, by import path.
var impureCalls = map[string][]string{
	"time":                                 {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"fmt":                                  {"Print", "Println", "Printf", "Scan", "Scanf", "Scanln"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
	"k8s.io/apimachinery/pkg/util/rand":    {"Int", "Intn", "IntnRange", "Int63nRange", "Seed", "Perm", "String"},
}

// banned are meaningless package names.
var banned = []string{"util", "utils", "common", "helper", "helpers", "types", "base", "misc", "manager", "shared", "lib"}

// skips are the ways in which a test gives up.
var skips = []string{"Skip", "Skipf", "SkipNow"}

// empty are meaningless beginnings of error texts.
var empty = []string{"failed to ", "error while ", "unable to ", "could not "}

// The limits of sizes; each must stay below its limit.
const (
	functionLines = 60
	fileLines     = 600
)

// foreign are modules of none of Millrace's programs: they only build other projects' programs,
// or compare Millrace's files with them, and use the versions that those projects require.
var foreign = []string{"test/cluster/kubernetes-1.34/go.mod", "test/cluster/kubernetes-1.35/go.mod", "test/cluster/kwok/go.mod", "test/helm/go.mod", "test/observability/rules/go.mod", "tools/compose/go.mod", "tools/jaeger/go.mod"}

// skipped are directories without Millrace's code.
var skipped = []string{".git", "testdata", "vendor", "node_modules"}

func list(parts ...[]string) []string {
	var all []string
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
