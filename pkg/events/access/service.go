package access

import "slices"

// service is a service with its permissions.
type service struct {
	user, account string
	// api is the prefix of its requests to JetStream's API, asks are the requests that it may
	// make, and never those that are denied, such as [nextOf] other services' consumers, from
	// which it may not take messages.
	api   string
	asks  []string
	never []string
	// many is true if it may request many subjects at once.
	many bool
	// acks are the consumers whose deliveries it acknowledges, each with the stream or a "*",
	// and neverAcks the exceptions.
	acks, neverAcks []string
	// says are the subjects of messages that it stores.
	says []string
	// own are the topics between its replicas, tells the topics on which it sends to other
	// accounts.
	own   []string
	tells []telling
	// hears are the subjects that it receives when they are published.
	hears []string
	// orders are the verbs of its requests to the provisioner.
	orders []string
}

// telling is a topic and the accounts that receive it.
type telling struct {
	topic string
	to    []string
}

// services are all services, for these controllers.
func services(controllers []string) []service {
	guests := func(user, account string) service {
		return service{user: user, account: account, api: GuestAPI, asks: GuestQuestions, hears: Published}
	}
	shadow := guests(Shadow, Shadows)
	shadow.says, shadow.own = []string{"shadow.>"}, []string{"shadows.*", "shadows.*.*"}
	all := []service{
		{
			user: Watcher, account: Watchers, api: API, asks: consuming, many: true,
			never:  nextOf(WriterConsumer),
			says:   []string{"ev.>", "status.watchers"},
			own:    []string{"watchers", "watchers.*", "watched", "epoch"},
			tells:  []telling{{"epoch", writerAccounts(controllers)}, {"heard.>", writerAccounts(controllers)}},
			orders: []string{MakeKind, ForgetKind, MakeShadow, MakeConsumer, Leave},
		},
		{
			// The provisioner names the consumers of its readers, and the readers acknowledge
			// what they read.
			user: Reconciler, account: Reconcilers, api: API, asks: append(slices.Clone(consuming), listing), many: true,
			never: nextOf(WriterConsumer), acks: []string{"*.*"}, neverAcks: anyStream(WriterConsumer),
			says:   []string{"turn.>", "sched.>", "status.reconcilers", "shadow.>"},
			own:    []string{"reconcilers", "reconcilers.*", "shadows.*", "shadows.*.*"},
			tells:  []telling{{"damage", []string{Watchers}}},
			orders: []string{MakeController, MakeShadow, MakeConsumer, Leave},
		},
		writer(controllers),
		{user: NotaryUser, account: Notary, api: API, asks: Reading, says: []string{"notary.>"}, orders: []string{MakeNotary}},
		guests(Reader, Readers),
		shadow,
	}
	for _, user := range splitting(controllers) {
		all = append(all, splitWriter(user, controllers))
	}
	return all
}

// consuming are the requests to JetStream's API that a service with consumers may make.
var consuming = append(slices.Clone(Reading), "CONSUMER.INFO.*.*", next)

// writer is the service that carries out turns and publishes their outcomes.
func writer(controllers []string) service {
	return service{
		user: Writer, account: Writers, api: API, asks: consuming, many: true,
		acks:   anyStream(WriterConsumer),
		says:   []string{"outcome.>"},
		own:    []string{"writers", "writers.*", "epoch"}, // among themselves
		tells:  []telling{{"writers", []string{Reconcilers}}, {"writes", []string{Watchers}}},
		orders: []string{MakeController, MakeConsumer, Leave},
	}
}

// anyStream are consumers with these names, of any stream.
func anyStream(consumers ...string) []string {
	all := make([]string, 0, len(consumers))
	for _, c := range consumers {
		all = append(all, "*."+c)
	}
	return all
}

const (
	next    = "CONSUMER.MSG.NEXT.*.*"
	listing = "CONSUMER.LIST.*"
)

// nextOf are the pull requests of consumers with these names.
func nextOf(consumers ...string) []string {
	all := make([]string, 0, len(consumers))
	for _, c := range consumers {
		all = append(all, "CONSUMER.MSG.NEXT.*."+c)
	}
	return all
}
