package priority

import (
	"fmt"
	"testing"
	"time"
)

// busy is a book with so many waiting jobs and users, in accounts of 100, of whom
// all have used something.
func busy(tb testing.TB, jobs, users int) *Book {
	c := Defaults()
	c.WeightAge, c.WeightFairshare, c.WeightQOS = 1000, 100_000, 1000
	c.QOS = []QOS{{Name: "normal", Priority: 1}, {Name: "high", Priority: 10}}
	b := mustNew(tb, c)
	b.Cluster(1000, TRES{Cores: 64_000})
	for k := range jobs + users {
		u := k % users
		at := time.Duration(k) * 10 * time.Millisecond
		must(tb, b.Submitted(Key(k), Submission{User: fmt.Sprint("u", u), Account: fmt.Sprint("a", u/100), QOS: "normal", At: at, Nodes: 1, Asks: TRES{Cores: 4}}))
		if k < users {
			must(tb, b.Started(Key(k), at, TRES{Cores: int64(1 + k%64)}))
		}
	}
	b.Due(time.Hour)
	return b
}

// A recalculation of everything, as it is due every five minutes.
func BenchmarkRecalculate(b *testing.B) {
	for _, size := range []struct{ jobs, users int }{{1000, 100}, {50_000, 10_000}, {200_000, 40_000}} {
		b.Run(fmt.Sprintf("jobs=%d/users=%d", size.jobs, size.users), func(b *testing.B) {
			book := busy(b, size.jobs, size.users)
			at := time.Hour
			for b.Loop() {
				at += 5 * time.Minute
				book.Due(at)
			}
		})
	}
}

// A job that comes while 50,000 others wait, of a user who is known.
func BenchmarkSubmit(b *testing.B) {
	book := busy(b, 50_000, 10_000)
	k := Key(1 << 30)
	for b.Loop() {
		k++
		if err := book.Submitted(k, Submission{User: "u17", Account: "a0", At: time.Hour}); err != nil {
			b.Fatal(err)
		}
		if len(book.Due(time.Hour)) != 1 {
			b.Fatal("the job was not ranked at once")
		}
		if err := book.Gone(k, time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}

// A start and an end change one user's meter, however many jobs and users there are.
func BenchmarkStartStop(b *testing.B) {
	book := busy(b, 50_000, 10_000)
	at := time.Hour
	for b.Loop() {
		at += time.Millisecond
		if book.Started(20_000, at, TRES{Cores: 4}) != nil || book.Requeued(20_000, at) != nil {
			b.Fatal("refused")
		}
	}
}
