// SPDX-License-Identifier: Apache-2.0
// An intrusive list: the items hold the links, so it needs no memory and cannot fail. The last item
// pushed comes first. An item is in one list at a time. Not thread-safe: the owner of the list
// protects it.
#pragma once

namespace cistern::alloc {

template <typename T>
struct NextLink {
  static T*& next(T* item) { return item->next; }
};

// Links: static T*& next(T*).
template <typename T, typename Links = NextLink<T>>
class LinkedList {
 public:
  constexpr LinkedList() = default;
  // Takes over items that are already linked.
  explicit LinkedList(T* first) : first_(first) {}

  bool empty() const { return first_ == nullptr; }
  T* first() const { return first_; }

  void push(T* item) {
    Links::next(item) = first_;
    first_ = item;
  }

  // Takes the first item out; nullptr if there is none.
  T* pop() {
    T* item = first_;
    if (item != nullptr) first_ = Links::next(item);
    return item;
  }

  // `item` is in the list.
  void remove(T* item) {
    T** link = &first_;
    while (*link != item) link = &Links::next(*link);
    *link = Links::next(item);
  }

  // `visit` must not change the list.
  template <typename Visitor>
  void for_each(Visitor visit) const {
    for (T* item = first_; item != nullptr; item = Links::next(item)) visit(item);
  }

 private:
  T* first_ = nullptr;
};

}  // namespace cistern::alloc
