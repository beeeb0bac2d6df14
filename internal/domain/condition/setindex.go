package condition

import (
	"slices"
	"strings"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// setIndex finds sets by what they ask, so that neither a node's event nor a forecast looks at each of them.
type setIndex struct {
	byName map[string]setList
	byType map[string]setList
	// byMember are the sets that ask for a node condition's type.
	byMember map[string]map[*setState]struct{}
	// byMembers are the sets with equal conditions; byKey are those of one taint key, by their conditions.
	byMembers map[string]setList
	byKey     map[string]map[string]*likeSets
	// byLease are the sets that read a condition without a heartbeat.
	byLease setList
}

// likeSets have the same taint key and the same conditions.
type likeSets struct {
	members []Member
	sets    setList
}

func newSetIndex() setIndex {
	return setIndex{byName: map[string]setList{}, byType: map[string]setList{}, byMember: map[string]map[*setState]struct{}{},
		byMembers: map[string]setList{}, byKey: map[string]map[string]*likeSets{}}
}

// setList is sorted by name.
type setList []*setState

func (l setList) place(s *setState) (at int, there bool) {
	return slices.BinarySearchFunc(l, s, func(a, b *setState) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
}

func (l setList) with(s *setState) setList {
	at, _ := l.place(s)
	return slices.Insert(l, at, s)
}

func (l setList) without(s *setState) setList {
	if at, there := l.place(s); there {
		return slices.Delete(l, at, at+1)
	}
	return l
}

// nameOthers adds the first names of sets that aren't called so and of which it is true.
func (l setList) nameOthers(first *firstNames, name string, is func(*setState) bool) {
	named := 0
	for _, s := range l {
		if s.Name == name || !is(s) {
			continue
		}
		first.add(s.Name)
		if named++; named == sample.Size {
			return
		}
	}
}

func put[K comparable](lists map[K]setList, key K, list setList) {
	if len(list) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = list
}

func (i *setIndex) add(s *setState) {
	i.byName[s.Name] = i.byName[s.Name].with(s)
	i.byType[s.Type] = i.byType[s.Type].with(s)
	if slices.ContainsFunc(s.Members, func(m Member) bool { return m.noHeartbeat }) {
		i.byLease = i.byLease.with(s)
	}
	if len(s.Members) == 0 {
		return
	}
	for _, m := range s.Members {
		if i.byMember[m.Type] == nil {
			i.byMember[m.Type] = map[*setState]struct{}{}
		}
		i.byMember[m.Type][s] = struct{}{}
	}
	text := membersText(s.Members)
	i.byMembers[text] = i.byMembers[text].with(s)
	if i.byKey[s.Key] == nil {
		i.byKey[s.Key] = map[string]*likeSets{}
	}
	if i.byKey[s.Key][text] == nil {
		i.byKey[s.Key][text] = &likeSets{members: s.Members}
	}
	alike := i.byKey[s.Key][text]
	alike.sets = alike.sets.with(s)
}

func (i *setIndex) remove(s *setState) {
	put(i.byName, s.Name, i.byName[s.Name].without(s))
	put(i.byType, s.Type, i.byType[s.Type].without(s))
	i.byLease = i.byLease.without(s)
	if len(s.Members) == 0 {
		return
	}
	for _, m := range s.Members {
		if delete(i.byMember[m.Type], s); len(i.byMember[m.Type]) == 0 {
			delete(i.byMember, m.Type)
		}
	}
	text := membersText(s.Members)
	put(i.byMembers, text, i.byMembers[text].without(s))
	alike := i.byKey[s.Key][text]
	if alike.sets = alike.sets.without(s); len(alike.sets) > 0 {
		return
	}
	if delete(i.byKey[s.Key], text); len(i.byKey[s.Key]) == 0 {
		delete(i.byKey, s.Key)
	}
}

// membersText is the same for equal conditions; no type has a line's end in it.
func membersText(members []Member) string {
	var text strings.Builder
	for _, m := range members {
		text.WriteString(m.Type + "=" + string(m.Status) + "\n")
	}
	return text.String()
}

// duplicatesOf names other sets with the same type or equal conditions.
func (i *setIndex) duplicatesOf(s *Set) []string {
	var first firstNames
	any := func(*setState) bool { return true }
	i.byType[s.Type].nameOthers(&first, s.Name, any)
	i.byMembers[membersText(s.Members)].nameOthers(&first, s.Name, any)
	return first.names
}

// impliedBy names other sets with the same key that match whenever this one does, but for its duplicates. It tries the
// parts of this set's conditions or looks at all conditions stored for the key, whichever are fewer.
func (i *setIndex) impliedBy(s *Set) []string {
	var first firstNames
	name := func(alike *likeSets) {
		alike.sets.nameOthers(&first, s.Name, func(o *setState) bool { return o.Type != s.Type })
	}
	ofKey := i.byKey[s.Key]
	if parts := 1<<len(s.Members) - 1; parts < len(ofKey) {
		for part := 1; part < parts; part++ {
			if alike := ofKey[membersText(partOf(s.Members, part))]; alike != nil {
				name(alike)
			}
		}
		return first.names
	}
	for _, alike := range ofKey {
		if len(alike.members) < len(s.Members) && subset(alike.members, s.Members) {
			name(alike)
		}
	}
	return first.names
}

// partOf are the members whose bits are set.
func partOf(members []Member, bits int) []Member {
	var part []Member
	for at, m := range members {
		if bits&(1<<at) != 0 {
			part = append(part, m)
		}
	}
	return part
}
