package access

import "slices"

// service is who works on the bus.
type service struct {
	user, account string
	// api is what it may ask of JetStream's API, and nextOf the consumers of others, from
	// which it may not take messages, in words of [server.Permissions].
	api   string
	asks  []string
	never []string
	// many tells that it may ask about many subjects at once.
	many bool
	// acks are the consumers whose deliveries it answers, each with the stream or a "*", and
	// neverAcks those of them whose it does not.
	acks, neverAcks []string
	// says are the subjects of messages that are stored.
	says []string
	// own are the topics on which its replicas talk to each other, tells those on which
	// it talks to other accounts.
	own   []string
	tells []telling
	// hears are the subjects of which it hears what is published.
	hears []string
	// orders are what it asks the provisioner for.
	orders []string
}

// telling is a topic and those who hear it.
type telling struct {
	topic string
	to    []string
}

// services are all services, for the controllers of the catalogue.
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
			orders: []string{MakeKind, RenewKind, ForgetKind, StepDown, MakeShadow, MakeConsumer, Leave},
		},
		{
			// Its readers have names that the provisioner makes up, and answer what they read.
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

// consuming is what one may ask of JetStream's API who works on what is stored.
var consuming = append(slices.Clone(Reading), "CONSUMER.INFO.*.*", next)

// writer is who carries out turns, and says what became of them.
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

// anyStream are consumers with these names, of whatever stream.
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

// nextOf are the questions for the next messages of consumers with these names.
func nextOf(consumers ...string) []string {
	all := make([]string, 0, len(consumers))
	for _, c := range consumers {
		all = append(all, "CONSUMER.MSG.NEXT.*."+c)
	}
	return all
}
